// Package api is generated from ../openapi.yaml: the types of answers.
package api
