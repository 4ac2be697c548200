"""The service of a home: what people who are not on its machine may ask of it, over HTTP."""
