"""One module per revision, numbered; a published revision is never changed."""
