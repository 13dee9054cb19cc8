// Package control is the API that manages rooms. openapi.yaml describes it, operations.go has its operations, and
// package api its types. It is compatible with Cloudflare's API for waiting rooms: the same paths, fields and envelope,
// so that clients of that API can manage rooms here.
//
// Settings are read and shown by the table of package room; fields.go has their places in a body.
//
// A change is compare-and-set on the stored rooms (package roomstore), so every candidate for global serves the API,
// leader or not. Rooms of a rooms file are read-only. Requests carry a token. Tokens are stored as hashes, in a store
// of their own.
package control
