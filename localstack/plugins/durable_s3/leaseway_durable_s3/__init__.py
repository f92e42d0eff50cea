"""LocalStack's S3 with data that survives a restart or a kill."""
