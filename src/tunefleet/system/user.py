"""Who runs this process."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """The name of the user, or `uid 1000` where the system has none, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
