// Package api is generated from ../openapi.yaml: the types of requests and answers.
package api
