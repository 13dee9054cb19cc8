package control

import (
	"net/http"
	"strings"
	"time"

	"vestibule/internal/global/members"
	"vestibule/internal/global/notices"
)

// New returns a server.
func New(o Options) *Server {
	down, entries := &outage{now: time.Now}, auditor{o.Audit, o.Log}
	s := &Server{
		Options: o, auditor: entries, tokens: newTokens(o.Docs, entries, down), members: members.List{Docs: o.Shared},
		hooks: notices.Webhooks{Docs: o.Docs}, previews: newPreviews(), outage: down, now: time.Now,
	}
	mux := http.NewServeMux()
	for _, op := range s.operations() {
		method, path, _ := strings.Cut(op.route, " ")
		mux.HandleFunc(method+" "+Prefix+path, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, &op) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.fail(w, noRoute(r)) })
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.fail(w, refusef(http.StatusForbidden, codeForbidden, "cross-origin requests are refused"))
	}))
	outer := http.NewServeMux()
	outer.Handle("GET /preview/{id}", s.previews)
	outer.Handle("/", cross.Handler(s.authenticate(mux)))
	s.handler, s.serveKnown = outer, mux
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serve(w, r, s.handler) }

// operations are all operations of the API.
func (s *Server) operations() []operation {
	const (
		zone  = "/zones/{zone_id}/waiting_rooms"
		rooms = zone + "/{waiting_room_id}"
		event = rooms + "/events/{event_id}"
		own   = "/vestibule/rooms/{waiting_room_id}"
	)
	return []operation{
		{"create-console-link", "POST /vestibule/console/links", Viewer, s.createLink},
		{"verify-token", "GET /user/tokens/verify", Viewer, s.verifyToken},

		{"waiting-room-list-waiting-rooms-account", "GET /accounts/{account_id}/waiting_rooms", Viewer, s.listRooms},
		{"waiting-room-list-waiting-rooms", "GET " + zone, Viewer, s.listRooms},
		{"waiting-room-create-waiting-room", "POST " + zone, Editor, s.createRoom},
		{"waiting-room-waiting-room-details", "GET " + rooms, Viewer, s.getRoom},
		{"waiting-room-update-waiting-room", "PUT " + rooms, Editor, s.updateRoom},
		{"waiting-room-patch-waiting-room", "PATCH " + rooms, Editor, s.updateRoom},
		{"waiting-room-delete-waiting-room", "DELETE " + rooms, Editor, s.deleteRoom},
		{"waiting-room-get-waiting-room-status", "GET " + rooms + "/status", Viewer, s.getStatus},
		{"waiting-room-get-zone-settings", "GET " + zone + "/settings", Viewer, s.getZone},
		{"waiting-room-update-zone-settings", "PUT " + zone + "/settings", Editor, s.putZone},
		{"waiting-room-patch-zone-settings", "PATCH " + zone + "/settings", Editor, s.putZone},
		{"waiting-room-create-a-custom-waiting-room-page-preview", "POST " + zone + "/preview", Operator, s.previews.create},

		{"waiting-room-list-events", "GET " + rooms + "/events", Viewer, s.listEvents},
		{"waiting-room-create-event", "POST " + rooms + "/events", Editor, s.createEvent},
		{"waiting-room-event-details", "GET " + event, Viewer, s.getEvent},
		{"waiting-room-update-event", "PUT " + event, Editor, s.updateEvent},
		{"waiting-room-patch-event", "PATCH " + event, Editor, s.updateEvent},
		{"waiting-room-delete-event", "DELETE " + event, Editor, s.deleteEvent},
		{"waiting-room-preview-active-event-details", "GET " + event + "/details", Viewer, s.eventDetails},

		{"waiting-room-list-waiting-room-rules", "GET " + rooms + "/rules", Viewer, s.listRules},
		{"waiting-room-create-waiting-room-rule", "POST " + rooms + "/rules", Editor, s.createRule},
		{"waiting-room-replace-waiting-room-rules", "PUT " + rooms + "/rules", Editor, s.replaceRules},
		{"waiting-room-patch-waiting-room-rule", "PATCH " + rooms + "/rules/{rule_id}", Editor, s.patchRule},
		{"waiting-room-delete-waiting-room-rule", "DELETE " + rooms + "/rules/{rule_id}", Editor, s.deleteRule},

		{"try-rules", "POST " + own + "/rules/try", Viewer, s.tryRules},

		{"get-controls", "GET " + own + "/controls", Viewer, s.getControls},
		{"patch-controls", "PATCH " + own + "/controls", Operator, s.patchControls},
		{"list-releases", "GET " + own + "/releases", Viewer, s.listReleases},
		{"create-release", "POST " + own + "/releases", Operator, s.createRelease},
		{"get-draw", "GET " + own + "/events/{event_id}/draw", Viewer, s.getDraw},
		{"list-revisions", "GET " + own + "/revisions", Editor, s.listRevisions},
		{"restore-revision", "POST " + own + "/revisions/{revision}/restore", Editor, s.restoreRevision},

		{"get-stats", "GET " + own + "/stats", Viewer, s.getStats},

		{"list-status", "GET /vestibule/status", Viewer, s.listStatus},
		{"list-hosts", "GET /vestibule/hosts", Viewer, s.listHosts},
		{"put-host", "PUT /vestibule/hosts/{host}", Editor, s.putHost},
		{"delete-host", "DELETE /vestibule/hosts/{host}", Editor, s.deleteHost},
		{"export-rooms", "GET /vestibule/export", Viewer, s.exportRooms},
		{"apply-rooms", "POST /vestibule/apply", Editor, s.applyRooms},
		{"get-visitor", "GET /vestibule/visitors/{number}", Viewer, s.getVisitor},
		{"get-fleet", "GET /vestibule/fleet", Viewer, s.getFleet},

		{"initialize-fleet", "POST /vestibule/init", Admin, s.initialize},
		{"list-data-centers", "GET /vestibule/data_centers", Viewer, s.listMembers},
		{"put-data-center", "PUT /vestibule/data_centers/{data_center}", Admin, s.putMember},
		{"delete-data-center", "DELETE /vestibule/data_centers/{data_center}", Admin, s.deleteMember},
		{"forget-edge", "POST /vestibule/data_centers/{data_center}/forget", Admin, s.forgetEdge},

		{"list-audit", "GET /vestibule/audit", Admin, s.listAudit},
		{"list-tokens", "GET /vestibule/tokens", Admin, s.listTokens},
		{"create-token", "POST /vestibule/tokens", Admin, s.createToken},
		{"delete-token", "DELETE /vestibule/tokens/{token_id}", Admin, s.deleteToken},
		{"list-webhooks", "GET /vestibule/webhooks", Admin, s.listWebhooks},
		{"create-webhook", "POST /vestibule/webhooks", Admin, s.createWebhook},
		{"patch-webhook", "PATCH /vestibule/webhooks/{webhook_id}", Admin, s.patchWebhook},
		{"delete-webhook", "DELETE /vestibule/webhooks/{webhook_id}", Admin, s.deleteWebhook},
		{"test-webhook", "POST /vestibule/webhooks/{webhook_id}/test", Admin, s.testWebhook},
	}
}
