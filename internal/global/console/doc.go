// Package console is the operators' web interface. Its pages are rendered on the server and work without script; a
// script replaces numbers with those of an event stream.
//
// The console has no data of its own: everything that it shows or does is an operation of the API (package control),
// called with the principal of the operator, so roles and audit entries are those of the API. An action has three
// steps: a form, a page that shows the consequence and asks for a reason, and the change. The page carries a digest
// of what the operator saw, and a change of anything else is refused. Every form is sent once.
//
// Streams of one room share one reading per second.
package console
