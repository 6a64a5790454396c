"""The deployment to Azure: the steps of `azd up` before, between and after its templates, and `landfall publish`."""
