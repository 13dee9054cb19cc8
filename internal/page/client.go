package page

import (
	_ "embed"
)

// Client is the module with which pages and apps wait for their requests, minified from client.js by `make scripts`.
// docs/APPS.md documents it.
//
//go:embed min/client.js
var Client string

// Words returns the messages that scripts show, in one language, as JSON. They are the same for all visitors.
func (l Lang) Words() string { return catalogs[l].script }
