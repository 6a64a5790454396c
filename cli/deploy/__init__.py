"""The steps of `azd up` that run before, between and after the templates."""
