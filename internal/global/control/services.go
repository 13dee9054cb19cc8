package control

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/members"
	"vestibule/internal/global/notices"
)

// Options are the parts of a server.
type Options struct {
	Name     string // of this candidate
	Rooms    Rooms
	Origin   string   // default origin of hosts without a known one; "": such rooms are refused
	Origins  []string // loopback origins that editors may set, besides Origin and those in use
	Audit    *audit.Journal
	Docs     wire.DocumentStore                                         // for tokens and webhooks
	Page     func(hash string) []byte                                   // a waiting page that is known here, nil for none
	Numbers  func(ctx context.Context, id room.ID) (n Numbers, ok bool) // ok is false without a leading global
	Ring     func() ticket.Keyring                                      // the ticket keys of this node
	Rotation time.Duration                                              // how long a key seals, 0 for ever
	Link     LinkFunc                                                   // nil for none
	// Sessions are those of persons; nil for none.
	Sessions Sessions
	History  History          // nil for none
	Fleet    func() api.Fleet // as the candidates last reported
	// OwnSites returns the sites that are listeners of the fleet, with these; nil for none.
	OwnSites func(ctx context.Context, sites []string) map[string]string
	Forget   ForgetFunc
	Find     FindFunc
	Count    func(operation string, status int) // called for each answered request; may be nil
	Log      *slog.Logger

	// Post posts a notice to a webhook, as a test.
	Post func(context.Context, time.Time, *notices.Webhook, *notices.Notice) notices.Result

	// Refuses returns why notices cannot be posted to a URL, nil if they can.
	Refuses func(url string) error

	Shared   wire.DocumentStore    // the documents that nodes read: the controls and the waiting pages
	Controls func() *room.Controls // those that this node applies, nil for none
	Board    func() *draw.Board    // public state of draws, nil for none
	Time     func() fleettime.Time // fleet time as this node knows it
}

// services serve the operations. Each has only the fields it needs.
type services struct {
	rooms     *roomService
	hosts     *hostService
	files     *applyService
	revisions *revisionService
	rules     *ruleService
	events    *eventService
	controls  *controlService
	limits    *limitService
	sessions  *sessionService
	releases  *releaseService
	status    *statusService
	stats     *statsService
	members   *memberService
	keys      *keyService
	audit     *auditService
	tokens    *tokenService
	webhooks  *webhookService
	previews  *previews
	zone      *zoneService
	visitors  *visitorService
}

func newServices(o Options) *services {
	at := clock{time: o.Time, now: time.Now}
	down := &outage{now: time.Now}
	rooms := &catalog{
		store: guardedRooms{o.Rooms, append(slices.Clone(o.Origins), o.Origin), o.OwnSites}, known: o.Page, docs: o.Shared, origin: o.Origin, outage: down,
	}
	entries := auditor{o.Audit, o.Log}
	overrides := &controls{at, entries, rooms, o.Shared, o.Controls}
	draws := &drawRules{at}
	room := &roomService{rooms, at, overrides}
	log := &auditService{rooms, o.Audit}
	return &services{
		rooms:     room,
		hosts:     &hostService{rooms},
		files:     &applyService{rooms, draws},
		revisions: &revisionService{log, room, draws},
		rules:     &ruleService{rooms, at},
		events:    &eventService{rooms, at, o.Board, draws},
		controls:  &controlService{rooms, at, overrides, o.Board},
		sessions:  &sessionService{at, entries, o.Sessions, NewThrottle()},
		limits:    &limitService{rooms, at, overrides, o.Board},
		releases:  &releaseService{rooms, at, overrides, o.Numbers},
		status:    &statusService{rooms, at, overrides, o.Numbers, o.Board, o.Fleet},
		stats:     &statsService{rooms, at, o.History, log, o.Log},
		members:   &memberService{at, entries, &members.List{Docs: o.Shared}, o.Forget},
		keys:      &keyService{at, entries, o.Shared, o.Ring, o.Rotation},
		audit:     log,
		tokens:    &tokenService{newTokens(o.Docs, entries, down), o.Name, rooms, o.Link},
		webhooks:  &webhookService{entries, rooms, at, notices.Webhooks{Docs: o.Docs}, o.Post, o.Refuses},
		previews:  newPreviews(),
		zone:      &zoneService{at, entries, o.Docs},
		visitors:  &visitorService{rooms, o.Fleet, o.Find},
	}
}

// operations are all operations of the API.
func (s *services) operations() []operation {
	const (
		zone  = "/zones/{zone_id}/waiting_rooms"
		rooms = zone + "/{waiting_room_id}"
		event = rooms + "/events/{event_id}"
		own   = "/vestibule/rooms/{waiting_room_id}"
	)
	return []operation{
		{"create-console-link", "POST /vestibule/console/links", Viewer, s.tokens.createLink},
		{"verify-token", "GET /user/tokens/verify", Viewer, s.tokens.verify},

		{"waiting-room-list-waiting-rooms-account", "GET /accounts/{account_id}/waiting_rooms", Viewer, s.rooms.list},
		{"waiting-room-list-waiting-rooms", "GET " + zone, Viewer, s.rooms.list},
		{"waiting-room-create-waiting-room", "POST " + zone, Editor, s.rooms.create},
		{"waiting-room-waiting-room-details", "GET " + rooms, Viewer, s.rooms.get},
		{"waiting-room-update-waiting-room", "PUT " + rooms, Editor, s.rooms.update},
		{"waiting-room-patch-waiting-room", "PATCH " + rooms, Editor, s.rooms.update},
		{"waiting-room-delete-waiting-room", "DELETE " + rooms, Editor, s.rooms.delete},
		{"waiting-room-get-waiting-room-status", "GET " + rooms + "/status", Viewer, s.status.get},
		{"waiting-room-get-zone-settings", "GET " + zone + "/settings", Viewer, s.zone.get},
		{"waiting-room-update-zone-settings", "PUT " + zone + "/settings", Editor, s.zone.put},
		{"waiting-room-patch-zone-settings", "PATCH " + zone + "/settings", Editor, s.zone.put},
		{"waiting-room-create-a-custom-waiting-room-page-preview", "POST " + zone + "/preview", Operator, s.previews.create},

		{"waiting-room-list-events", "GET " + rooms + "/events", Viewer, s.events.list},
		{"waiting-room-create-event", "POST " + rooms + "/events", Editor, s.events.create},
		{"waiting-room-event-details", "GET " + event, Viewer, s.events.get},
		{"waiting-room-update-event", "PUT " + event, Editor, s.events.update},
		{"waiting-room-patch-event", "PATCH " + event, Editor, s.events.update},
		{"waiting-room-delete-event", "DELETE " + event, Editor, s.events.delete},
		{"waiting-room-preview-active-event-details", "GET " + event + "/details", Viewer, s.events.details},

		{"waiting-room-list-waiting-room-rules", "GET " + rooms + "/rules", Viewer, s.rules.list},
		{"waiting-room-create-waiting-room-rule", "POST " + rooms + "/rules", Editor, s.rules.create},
		{"waiting-room-replace-waiting-room-rules", "PUT " + rooms + "/rules", Editor, s.rules.replace},
		{"waiting-room-patch-waiting-room-rule", "PATCH " + rooms + "/rules/{rule_id}", Editor, s.rules.patch},
		{"waiting-room-delete-waiting-room-rule", "DELETE " + rooms + "/rules/{rule_id}", Editor, s.rules.delete},

		{"try-rules", "POST " + own + "/rules/try", Viewer, s.rules.try},

		{"get-controls", "GET " + own + "/controls", Viewer, s.controls.get},
		{"patch-controls", "PATCH " + own + "/controls", Operator, s.controls.patch},
		{"list-releases", "GET " + own + "/releases", Viewer, s.releases.list},
		{"create-release", "POST " + own + "/releases", Operator, s.releases.create},
		{"get-draw", "GET " + own + "/events/{event_id}/draw", Viewer, s.events.draw},
		{"list-revisions", "GET " + own + "/revisions", Editor, s.revisions.list},
		{"restore-revision", "POST " + own + "/revisions/{revision}/restore", Editor, s.revisions.restore},

		{"get-stats", "GET " + own + "/stats", Viewer, s.stats.get},

		{"list-status", "GET /vestibule/status", Viewer, s.status.list},
		{"list-hosts", "GET /vestibule/hosts", Viewer, s.hosts.list},
		{"put-host", "PUT /vestibule/hosts/{host}", Editor, s.hosts.put},
		{"delete-host", "DELETE /vestibule/hosts/{host}", Editor, s.hosts.delete},
		{"export-rooms", "GET /vestibule/export", Viewer, s.files.export},
		{"apply-rooms", "POST /vestibule/apply", Editor, s.files.apply},
		{"get-visitor", "GET /vestibule/visitors/{number}", Viewer, s.visitors.get},
		{"get-fleet", "GET /vestibule/fleet", Viewer, s.status.fleet},

		{"initialize-fleet", "POST /vestibule/init", Admin, s.members.initialize},
		{"rotate-keys", "POST /vestibule/keys/rotate", Admin, s.keys.rotate},
		{"list-data-centers", "GET /vestibule/data_centers", Viewer, s.members.list},
		{"put-data-center", "PUT /vestibule/data_centers/{data_center}", Admin, s.members.put},
		{"delete-data-center", "DELETE /vestibule/data_centers/{data_center}", Admin, s.members.delete},
		{"forget-edge", "POST /vestibule/data_centers/{data_center}/forget", Admin, s.members.forgetEdge},

		{"list-audit", "GET /vestibule/audit", Admin, s.audit.list},
		{"list-tokens", "GET /vestibule/tokens", Admin, s.tokens.list},
		{"create-token", "POST /vestibule/tokens", Admin, s.tokens.create},
		{"delete-token", "DELETE /vestibule/tokens/{token_id}", Admin, s.tokens.delete},
		{"list-webhooks", "GET /vestibule/webhooks", Admin, s.webhooks.list},
		{"create-webhook", "POST /vestibule/webhooks", Admin, s.webhooks.create},
		{"patch-webhook", "PATCH /vestibule/webhooks/{webhook_id}", Admin, s.webhooks.patch},
		{"delete-webhook", "DELETE /vestibule/webhooks/{webhook_id}", Admin, s.webhooks.delete},
		{"test-webhook", "POST /vestibule/webhooks/{webhook_id}/test", Admin, s.webhooks.test},
	}
}
