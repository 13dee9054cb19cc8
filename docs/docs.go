// Package docs has the documents that a process shows, and the table of goals.
package docs

import _ "embed"

// Runbook is RUNBOOK.md: what to do about each alarm.
//
//go:embed RUNBOOK.md
var Runbook string

// Figures is figures.json: the figures and goals by which commands and tests judge. No process shows it.
//
//go:embed figures.json
var Figures string
