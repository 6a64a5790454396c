"""What brings Landfall to Azure: the steps of `azd up` beside its templates, and `landfall publish`."""
