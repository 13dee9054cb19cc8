// Package control is the API by which people and programs manage rooms. It is described by
// openapi.yaml, of which package api is made, and speaks as Cloudflare's API for waiting rooms
// does: the same paths, fields and envelope, so that clients of that one manage rooms here.
//
// A change is compare-and-set on the stored rooms (package roomstore), so any candidate for global
// serves the API; it need not lead. Rooms of a rooms file are shown and refuse changes.
// Who asks shows a token. Tokens are kept in a store of their own, as hashes.
package control
