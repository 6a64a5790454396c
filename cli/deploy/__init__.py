"""The steps of `azd up` that are not templates: what runs before, between and after them."""
