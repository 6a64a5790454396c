"""The file that the Functions host looks for; it is never run.

The host finds zero functions, and says nothing, when `function_app.py` is missing. Python then imports
`function_app` by name, and the package of that name beside this file wins: the app is `function_app/__init__.py`.
"""
