"""The contract between the submitter (function_app) and the training (training_job): standard library plus crc32c."""
