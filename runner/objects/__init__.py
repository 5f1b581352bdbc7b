"""Object storage that requests name: S3, OSS and a local folder; archives, signed addresses, collection."""
