package control

import (
	"strings"

	"vestibule/internal/core/room"
)

// Prefix is the path prefix of the API.
const Prefix = "/client/v4"

// There is one zone, with all hosts, and one account. Their ids never change.
var (
	Zone    = room.PublicID("vestibule zone")
	Account = room.PublicID("vestibule account")
)

// The error codes of the hosted product. Those from 1101 on are ours.
const (
	codeAuthentication = 1000
	codeNotFound       = 1001
	codeInvalid        = 1002
	codeFromFile       = 1101
	codeNotNow         = 1102
	codeChanged        = 1103
	codeOld            = 1104
	codeKept           = 1105
	codeNoRoute        = 7003
	codeForbidden      = 10000
)

// maxBody bounds a body: the largest waiting page, escaped.
const maxBody = 2 << 20

// maxApply bounds the body of an apply request: the largest rooms file, escaped, and some pages.
const maxApply = 32 << 20

// applyPath is the only path with the larger body limit.
const applyPath = Prefix + "/vestibule/apply"

// ownPrefix begins the JSON pointers of settings that the hosted product lacks.
const ownPrefix = "/vestibule/"

// place returns the JSON pointer of a setting in a room of the API. The named ones are those of the hosted product.
func place(key string) string {
	switch key {
	case "name", "host", "path", "additional_routes", "total_active_users", "new_users_per_minute", "session_duration",
		"queueing_status_code", "default_template_language", "description", "queueing_method", "queue_all", "suspended",
		"disable_session_renewal", "cookie_suffix", "json_response_enabled", "enabled_origin_commands", "turnstile_mode",
		"turnstile_action",
		"identity", "rules", "events": // the last three are not among fields
		return "/" + key
	case "cookie_samesite", "cookie_secure":
		return "/cookie_attributes/" + strings.TrimPrefix(key, "cookie_")
	case "waiting_page":
		return "/custom_page_html"
	}
	return ownPrefix + key
}

// webhookTarget begins the target of audit entries about webhooks; the ID follows.
const webhookTarget = "webhook."
