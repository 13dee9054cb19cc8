package page

import (
	_ "embed"
)

//go:embed client.js
var clientSource string

// Client is the module by which pages and apps wait in line for their requests, without its comments. docs/APPS.md documents it.
var Client = squeeze(clientSource)

// Words returns the messages that a script shows, in one language, as JSON. They are the same for everybody.
func (l Lang) Words() string { return catalogs[l].script }
