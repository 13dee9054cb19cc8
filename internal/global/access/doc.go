// Package access lets people log in: local users with a password and a second factor, and users of an OpenID Connect
// provider. Programs use tokens instead: see package control.
//
// All users and one-time links are one document, changed by compare-and-set. So a link is used once, and the last admin
// stays, whoever else changes users at the same time. Sessions are documents of their own.
package access
