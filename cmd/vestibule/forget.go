package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// forgetAsk returns what is asked of the regional, or all that is wrong with it.
func (c *fleetConfig) forgetAsk(edge string) (wire.ForgetAsk, error) {
	ask := wire.ForgetAsk{Edge: edge, All: c.All}
	var errs []error
	if err := wire.CheckName(edge); err != nil && !c.All {
		errs = append(errs, fmt.Errorf("EDGE: %w", err))
	}
	if c.All && (edge != "" || c.Inc != "") {
		errs = append(errs, errors.New("all: names every edge that is not heard, so EDGE and incarnation must be left out"))
	}
	if err := wire.CheckName(c.DC); err != nil {
		errs = append(errs, fmt.Errorf("dc: %w", err))
	}
	if c.Inc != "" {
		var err error
		if ask.Inc, err = strconv.ParseUint(c.Inc, 10, 64); err != nil || ask.Inc == 0 {
			errs = append(errs, fmt.Errorf("incarnation: must be a whole number above zero, got %q", c.Inc))
		}
	}
	return ask, errors.Join(errs...)
}

// askRegional asks the regional that leads dc on a subject of operators, and prints its answer.
func askRegional(ctx context.Context, conn *natsbus.Conn, dc, subject string, question []byte, out io.Writer) error {
	data, err := conn.Ask(ctx, subject, question)
	if errors.Is(err, natsbus.ErrNobody) {
		return fmt.Errorf("no regional leads %s here, or it is older than this command: is this the NATS of the data centre's edges?", dc)
	}
	if err != nil {
		return err
	}
	var answer wire.ForgetAnswer
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	_, err = fmt.Fprintln(out, answer.Done)
	return err
}
