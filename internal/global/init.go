package global

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/jsondoc"
	"vestibule/internal/global/members"
	"vestibule/internal/node"
)

// A fleet without any memory may be new, or have lost everything while visitors are inside. Nodes cannot tell, so an
// operator says it once: vestibule init. The leader believes it only while no node that answers and no store has a
// ticket key or a list of data centres, and every data centre reports that it never admitted anybody. Without a key, no
// ticket of before can be valid, whatever was lost.

const (
	// initEvery is how often a leader of an uninitialized fleet looks for a request.
	initEvery = time.Second

	// initWithin is how long a request waits for nodes to report.
	initWithin = 15 * time.Second
)

// errUninitialized means that the first keys wait for an operator.
var errUninitialized = errors.New("this fleet has never admitted anybody: vestibule init")

// new reports whether nothing shows that this fleet has ever begun.
func (p *publisher) new(c *census) bool {
	return c.leads && !p.fresh && c.Members == 0 && c.Newest == 0 && !c.Unfounded &&
		p.copies.newest(p.s.fleet.Members()) == nil
}

// initialize handles the request of an operator to initialize the fleet, if there is one.
func (p *publisher) initialize(ctx context.Context, wall time.Time, c *census) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, revision, err := jsondoc.Read[members.Request](ctx, p.s.Docs, node.InitDocument)
	if err != nil || r == nil || r.Answered() {
		return err
	}
	waits, err := p.mayBegin(ctx, wall, c)
	if err == nil && waits == "" {
		waits, err = p.beginAll(ctx, c)
	}
	switch late := p.asked(wall, askFor) && wall.Sub(r.At) > initWithin; { // a leader's own wait refuses nobody
	case err != nil:
		r.Error = err.Error()
	case waits != "" && late:
		r.Error = waits
	case waits != "":
		return nil
	default:
		r.Done = "the fleet is initialized: its data centres " + strings.Join(names(c), ", ") + " admit visitors"
	}
	p.s.log.Warn("an operator initializes the fleet", slog.String("done", r.Done), slog.String("refused", r.Error))
	return jsondoc.Write(ctx, p.s.Docs, node.InitDocument, r, revision)
}

// mayBegin returns why the fleet cannot be initialized yet, or an error if it must not be.
func (p *publisher) mayBegin(ctx context.Context, wall time.Time, c *census) (waits string, _ error) {
	for doc, what := range map[string]string{
		node.KeysDocument: "ticket keys", node.MembersDocument: "a list of data centres",
	} {
		data, _, err := p.s.Docs.Get(ctx, doc)
		if err != nil {
			return "the store does not answer: " + err.Error(), nil //nolint:nilerr // it is tried again
		}
		if data != nil {
			return "", fmt.Errorf("the store has %s: visitors may have been admitted", what)
		}
	}
	heard, _ := p.copies.keys()
	if len(heard.Keys)+len(p.s.fleet.Ring().Keys) > 0 {
		return "", errors.New("a node has ticket keys: visitors may have been admitted")
	}
	if !p.asked(wall, askFor) {
		return "every node is asked for ticket keys first, for " + askFor.String(), nil
	}
	for _, d := range c.centres {
		switch {
		case d.Standing != wire.Listed:
		case d.Held != 0 || d.RateHeld != 0 || d.Sessions != 0:
			return "", fmt.Errorf("data centre %s has permits or sessions", d.Name)
		case d.Reporting || slices.Contains(c.uninit, d.Name):
		case d.Term == 0:
			return fmt.Sprintf("data centre %s of data_centers has not reported: check that its regional runs, has this name and reaches NATS",
				d.Name), nil
		default:
			return fmt.Sprintf("data centre %s reports that visitors may have been admitted there: see the alarms of its regional's /readyz",
				d.Name), nil
		}
	}
	return "", nil
}

// beginAll orders every data centre that waits for it to begin. Others have begun by an earlier request.
func (p *publisher) beginAll(ctx context.Context, c *census) (waits string, _ error) {
	p.begun()
	for _, dc := range c.uninit {
		if err := p.s.Orders.Begin(ctx, dc); err != nil {
			if errors.Is(err, errNoResult) || ctx.Err() != nil {
				return err.Error(), nil
			}
			return "", err
		}
	}
	return "", nil
}

// names returns the data centres that belong to the fleet.
func names(c *census) (out []string) {
	for _, d := range c.centres {
		if d.Standing == wire.Listed {
			out = append(out, d.Name)
		}
	}
	return out
}
