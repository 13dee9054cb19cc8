// Package contract drives the API as the official Go and npm clients of Cloudflare's API and its Terraform provider do,
// and holds every request and answer against the OpenAPI document. It is a module of its own, so that these clients
// and the validator are no dependencies of Vestibule.
package contract
