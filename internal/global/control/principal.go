package control

import (
	"context"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/core/rules"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/roomstore"
)

// Principal is an authenticated client.
type Principal struct {
	ID    string // of the token, or "oidc:" and the subject of a person
	Name  string
	Role  Role
	Rooms []string `json:",omitempty"` // IDs of the only rooms; none for all
}

// mayIn reports whether an operation on a room, "" for none, concerns only rooms of the principal.
func (who Principal) mayIn(id, operation string) bool {
	return len(who.Rooms) == 0 || id != "" && slices.Contains(who.Rooms, id) || id == "" && forAnyRooms[operation]
}

// forAnyRooms are the operations without a room in the path that principals with some rooms may call. Lists show only
// their rooms.
var forAnyRooms = map[string]bool{
	"verify-token": true, "create-console-link": true, "waiting-room-list-waiting-rooms-account": true,
	"waiting-room-list-waiting-rooms": true, "list-status": true, "waiting-room-get-zone-settings": true,
	"waiting-room-create-a-custom-waiting-room-page-preview": true, "get-fleet": true, "get-visitor": true,
}

// only returns the rooms of the principal.
func (who Principal) only(rooms []*roomstore.Room) []*roomstore.Room {
	if len(who.Rooms) == 0 {
		return rooms
	}
	return slices.DeleteFunc(slices.Clone(rooms),
		func(r *roomstore.Room) bool { return !slices.Contains(who.Rooms, room.PublicID(r.TicketName())) })
}

// expression returns a rule's expression as the principal may see it. Literals may be secrets, such as the value of a
// header that programs send, so a viewer does not see them.
func (who Principal) expression(text string) string {
	if who.Role == Viewer {
		return rules.Mask(text)
	}
	return text
}

type principalKey struct{}

func principal(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// as returns a context that attributes changes to the principal and an operation, with a reason.
func (who Principal) as(ctx context.Context, remote, operation, reason string) context.Context {
	return roomstore.By(ctx,
		audit.By{
			ID: who.ID, Name: who.Name, Role: string(who.Role), From: Source(remote), Operation: operation, Reason: reason,
		})
}
