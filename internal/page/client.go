package page

import (
	_ "embed"
)

//go:embed client.js
var clientSource string

// Client is the module with which pages and apps wait for their requests, without comments. docs/APPS.md documents
// it.
var Client = squeeze(clientSource)

// Words returns the messages that scripts show, in one language, as JSON. They are the same for all visitors.
func (l Lang) Words() string { return catalogs[l].script }
