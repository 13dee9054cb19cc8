// Operator manages rooms like the operator of a sale, with the official client of the hosted API: it makes two,
// raises the limit of one, suspends the other, and deletes that one at the end. It prints each step as a line of
// JSON, with the times before and after.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/cloudflare/cloudflare-go"
)

// step is one completed step.
type step struct {
	Did   string    `json:"did"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"` // when it was answered
}

func main() {
	url := flag.String("url", "", "of the API, which ends in /client/v4")
	zone := flag.String("zone", "", "of the rooms")
	host := flag.String("host", "127.0.0.1", "of both rooms")
	wait := flag.Duration("step", 15*time.Second,
		"between making the rooms and changing them; twice as long until one is deleted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := operate(ctx, *url, os.Getenv("VESTIBULE_TOKEN"), *zone, *host, *wait); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func operate(ctx context.Context, url, token, zone, host string, wait time.Duration) error {
	api, err := cloudflare.NewWithAPIToken(token, cloudflare.BaseURL(url))
	if err != nil {
		return err
	}
	do := func(did string, call func() error) error {
		s := step{Did: did, From: time.Now()}
		if err := call(); err != nil {
			return fmt.Errorf("%s: %w", did, err)
		}
		s.Until = time.Now()
		return json.NewEncoder(os.Stdout).Encode(s)
	}
	var concert, merch *cloudflare.WaitingRoom
	room := func(name string, total int) cloudflare.WaitingRoom {
		return cloudflare.WaitingRoom{
			Name: name, Host: host, Path: "/" + name, TotalActiveUsers: total, NewUsersPerMinute: 200, SessionDuration: 1,
		}
	}
	err = do("made", func() (err error) {
		if concert, err = api.CreateWaitingRoom(ctx, zone, room("concert", 20)); err != nil {
			return err
		}
		merch, err = api.CreateWaitingRoom(ctx, zone, room("merch", 5))
		return err
	})
	if err == nil {
		err = pause(ctx, wait)
	}
	if err == nil {
		err = do("raised", func() error {
			concert.TotalActiveUsers = 30
			got, err := api.ChangeWaitingRoom(ctx, zone, concert.ID, *concert)
			if err == nil && got.TotalActiveUsers != 30 {
				err = fmt.Errorf("the room is %+v", got)
			}
			return err
		})
	}
	if err == nil {
		err = do("suspended", func() error {
			merch.Suspended = true
			_, err := api.UpdateWaitingRoom(ctx, zone, *merch)
			return err
		})
	}
	if err == nil {
		err = pause(ctx, 2*wait)
	}
	if err == nil {
		err = do("deleted", func() error { return api.DeleteWaitingRoom(ctx, zone, merch.ID) })
	}
	if err != nil {
		return err
	}
	left, err := api.ListWaitingRooms(ctx, zone)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range left {
		names = append(names, r.Name)
	}
	if strings.Join(names, " ") != "concert" {
		return fmt.Errorf("rooms at the end: %q, want concert alone", names)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
