// Package api is made of ../openapi.yaml: the types of requests and answers, the server's
// routes and a client. Nothing in it is written by hand but this comment; package control is
// what answers.
package api
