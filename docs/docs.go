// Package docs has the documents that a process shows.
package docs

import _ "embed"

// Runbook is RUNBOOK.md: what to do about each alarm.
//
//go:embed RUNBOOK.md
var Runbook string
