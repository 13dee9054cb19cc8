package natsconf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// removedDir is the folder with the certificates of removed users, by place and folder.
const removedDir = "removed"

// nodeFolders lists the folders of users that can connect, by role.
var nodeFolders = map[string]natsbus.Role{
	folder(natsbus.RoleOperator): natsbus.RoleOperator, folder(natsbus.RoleProvision): natsbus.RoleProvision,
	folder(natsbus.RoleGlobal): natsbus.RoleGlobal, folder(natsbus.RoleRegional): natsbus.RoleRegional,
	folder(natsbus.RoleEdge): natsbus.RoleEdge, folder(natsbus.RoleNotifier): natsbus.RoleNotifier,
}

// written lists the certificates of users below a folder, as place/folder/name.crt.
func written(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "*", "*", "*.crt"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range all {
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return nil, err
		}
		parts := strings.Split(filepath.ToSlash(rel), "/")
		if _, ok := nodeFolders[parts[1]]; ok && parts[0] != removedDir && parts[2] != "ca.crt" {
			out = append(out, strings.Join(parts, "/"))
		}
	}
	return out, nil
}

// Unnamed lists the users whose certificates were written to a folder before, and which the plan does not name, as
// place/folder/name.
func (p *Plan) Unnamed(dir string) ([]string, error) {
	before, err := written(dir)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, place := range p.places() {
		for _, u := range p.users(place) {
			named[place+"/"+folder(u.role)+"/"+u.file()+".crt"] = true
		}
	}
	before = slices.DeleteFunc(before, func(file string) bool { return named[file] })
	for i := range before {
		before[i] = strings.TrimSuffix(before[i], ".crt")
	}
	return before, nil
}

// Remove moves the certificates of users to a folder of removed ones, so that [Verify] finds that they are refused.
func Remove(dir string, users []string) error {
	for _, u := range users {
		for _, ext := range []string{".crt", ".key"} {
			to := filepath.Join(dir, removedDir, filepath.FromSlash(u)+ext)
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(dir, filepath.FromSlash(u)+ext), to); err != nil {
				return err
			}
		}
	}
	return nil
}

// placesOf lists the places of users.
func placesOf(users []string) []string {
	var out []string
	for _, u := range users {
		place, _, _ := strings.Cut(u, "/")
		out = append(out, place)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// UnwrittenError means that a folder has no users of a place: no server was asked.
type UnwrittenError struct{ error }

// Advice returns the next step after an error of [Verify]; "" if the error says it.
func Advice(err error) string {
	var unwritten *UnwrittenError
	var address *url.Error
	var dial *net.OpError
	switch {
	case err == nil, errors.As(err, &unwritten), errors.As(err, &address), errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, nats.ErrNoServers), errors.As(err, &dial) && dial.Op == "dial":
		return "no server answers there: start it, or correct the address"
	}
	return "reload the server (SIGHUP), of global before those of data centres, and verify again"
}

// Verified counts the users that [Verify] tried.
type Verified struct{ Users, Removed int }

// Verify connects to a server of a place as each user with a certificate in the folder, and makes the reads of its
// role. Each removed user must be refused. The error has a line for each fault.
func Verify(ctx context.Context, dir, place, server string) (n Verified, err error) {
	users, err := written(dir)
	if err != nil {
		return n, err
	}
	removed, err := written(filepath.Join(dir, removedDir))
	if err != nil {
		return n, err
	}
	// The servers of global and those of data centres have one authority: a user must exist at its own place alone.
	elsewhere := func(u string) bool { return !strings.HasPrefix(u, place+"/") }
	places := placesOf(users)
	users, removed = slices.DeleteFunc(users, elsewhere), slices.DeleteFunc(removed, elsewhere)
	switch {
	case len(places) == 0:
		return n, &UnwrittenError{fmt.Errorf("%s: no users are written there: see nats-config write", dir)}
	case len(users) == 0:
		return n, &UnwrittenError{fmt.Errorf("%s: no users of a place %q are written there%s (places: %s)", dir, place,
			room.Meant(place, places), strings.Join(places, ", "))}
	}
	var faults []error
	for _, u := range users {
		if err := try(ctx, dir, dir, u, server); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", strings.TrimSuffix(u, ".crt"), err))
		}
		n.Users++
		if errors.Is(err, nats.ErrNoServers) || ctx.Err() != nil {
			break // the others fail too
		}
	}
	if len(faults) == len(users) {
		return n, errors.Join(faults[0], fmt.Errorf("and so do all %d users", len(users)))
	}
	for _, u := range removed {
		switch err := try(ctx, dir, filepath.Join(dir, removedDir), u, server); {
		case errors.Is(err, nats.ErrAuthorization):
			n.Removed++
		case err == nil, errors.Is(err, errReads):
			faults = append(faults, fmt.Errorf("%s: was removed, and is still let in", strings.TrimSuffix(u, ".crt")))
		default:
			faults = append(faults, fmt.Errorf("%s: was removed: %w", strings.TrimSuffix(u, ".crt"), err))
		}
	}
	return n, errors.Join(faults...)
}

// errReads means that a user was let in, and cannot read.
var errReads = errors.New("is let in, but does not reach the documents")

// try connects as a user and reads the state of the documents, if its role does.
func try(ctx context.Context, dir, from, user, server string) error {
	place, rest, _ := strings.Cut(user, "/")
	in, file, _ := strings.Cut(rest, "/")
	name, role := strings.TrimSuffix(file, ".crt"), nodeFolders[in]
	inbox := "_INBOX." + natsbus.NodeInbox(role, place, name)
	if role == natsbus.RoleOperator {
		inbox = "_INBOX." + natsbus.OperatorInbox
	}
	cert := filepath.Join(from, filepath.FromSlash(user))
	c, err := nats.Connect(server, nats.RootCAs(filepath.Join(dir, "ca.crt")),
		nats.ClientCert(cert, strings.TrimSuffix(cert, ".crt")+".key"), nats.CustomInboxPrefix(inbox), nats.NoReconnect(),
		nats.Timeout(5*time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	may := natsbus.Allow(role, place, name).Publish
	info := slices.IndexFunc(may,
		func(s string) bool { return strings.HasSuffix(s, "STREAM.INFO."+natsbus.DocumentsStream) })
	if info < 0 || role == natsbus.RoleProvision {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	m, err := c.RequestWithContext(ctx, may[info], nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errReads, err)
	}
	if strings.Contains(string(m.Data), `"error"`) && place != wire.Root {
		return fmt.Errorf("%w: %s", errReads, m.Data)
	}
	return nil
}
