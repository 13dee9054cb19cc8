// Package access lets people into the console. A one-time link turns an API token into a session, and an OpenID
// Connect provider vouches for a person. Passwords are the provider's: there are none here. Programs use tokens: see
// package control.
//
// Links and sessions are documents of the store, so any global serves them. A session of a token ends with the token.
package access
