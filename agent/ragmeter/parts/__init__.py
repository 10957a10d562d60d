"""The features of a service, one folder each, behind the contract of `ragmeter.parts.contract`.

`ragmeter.app.parts` lists those that an agent and a worker have.
"""
