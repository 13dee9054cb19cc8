package control

import (
	"context"
	"errors"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

func asFaults(err error) (room.Faults, bool) { return errors.AsType[room.Faults](err) }

// show returns a room as the API shows it, with every field.
func (s *roomService) show(ctx context.Context, r *roomstore.Room) (out api.Room, err error) {
	out = api.Room{
		Id: room.PublicID(r.Known()), CreatedOn: time.UnixMilli(r.Created).UTC(), ModifiedOn: time.UnixMilli(r.Changed).UTC(),
		Name: r.Name, Host: r.Host, Path: r.Path, AdditionalRoutes: []api.Route{},
		TotalActiveUsers: r.TotalActiveUsers, NewUsersPerMinute: r.NewUsersPerMinute, SessionDuration: minutes(r.SessionDuration),
		QueueingMethod: r.QueueingMethod, QueueingStatusCode: r.QueueingStatus, DefaultTemplateLanguage: r.DefaultLanguage,
		EnabledOriginCommands: []string{}, TurnstileMode: "invisible", TurnstileAction: "log", Vestibule: shownOwn(r),
		Description: r.Description, QueueAll: r.QueueAll, Suspended: r.Suspended, DisableSessionRenewal: r.NoRenewal,
		CookieSuffix: r.CookieSuffix, JsonResponseEnabled: r.JSONResponse,
	}
	out.CookieAttributes.Samesite, out.CookieAttributes.Secure = r.CookieSameSite, r.CookieSecure
	if r.OriginCommands != "" {
		out.EnabledOriginCommands = append(out.EnabledOriginCommands, r.OriginCommands)
	}
	out.NextEventPrequeueStartTime, out.NextEventStartTime = nextEvent(&r.Settings, s.fleet())
	for _, route := range r.AdditionalRoutes {
		out.AdditionalRoutes = append(out.AdditionalRoutes, api.Route{Host: route.Host, Path: route.Path})
	}
	if r.WaitingPage != "" {
		page, err := s.page(ctx, r.WaitingPage)
		if err != nil {
			return out, err
		}
		out.CustomPageHtml = string(page)
	}
	return out, nil
}

// shownOwn returns the settings that the hosted product lacks.
func shownOwn(r *roomstore.Room) map[string]any {
	out := map[string]any{"revision": r.Revision, "identity": r.Known()}
	for _, key := range own {
		out[key] = plainValue(settingOf(key).Value(&r.Settings))
	}
	return out
}

// plainValue returns a value of a setting as JSON shows it.
func plainValue(v any) any {
	if d, ok := v.(time.Duration); ok {
		return d.String()
	}
	return v
}
