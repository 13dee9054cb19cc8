package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

const releaseUsage = `usage: vestibule release ROOM N [flags]; vestibule release ROOM

Lets in the next N of those who wait in a room that is paused (vestibule pause): never more than N, and as many as the limits
of the room allow. Who joined first enters first. N is 1 to 1000. Without N: shows how far the newest release is.
A release ends with the pause. One that the leading global did not end itself lets in fewer: what is shown says so.
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable.
`

func release(args []string, stdout, stderr io.Writer) error {
	f, flags := flagSet("release", stderr), &clientFlags{}
	flags.add(f)
	reason := f.String("reason", "", "why, for those who look later")
	replace := f.Bool("replace", false, "end a release before it that is open: it lets in nobody any more")
	key := f.String("key", "", "who asks again with the same key asks for the same release; made up where it is not given")
	c, words, done, err := flags.open(f, args, releaseUsage, stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	n, fault := 0, ""
	switch {
	case len(words) == 0 || len(words) > 2:
		fault = "ROOM and N: are needed, nothing else"
	case len(words) == 1 && (*reason != "" || *replace || *key != ""):
		fault = "N: is needed"
	case len(words) == 2:
		if n, err = strconv.Atoi(words[1]); err != nil || n < 1 {
			fault = fmt.Sprintf("N: must be a number above 0, got %q", words[1])
		}
	}
	if fault != "" {
		fmt.Fprintf(stderr, "%s: %s (see --help)\n", f.Name(), fault)
		return node.ErrUsage
	}
	if _, err := c.verify(); err != nil {
		return err
	}
	r, err := c.find(words[0])
	if err != nil {
		return err
	}
	all := []api.Release{}
	if n == 0 {
		res, err2 := c.ListReleases(c.ctx, r.Id)
		err = take(res, err2, &all)
	} else {
		if *key == "" {
			*key = rand.Text()
		}
		body, err2 := json.Marshal(map[string]any{"people": n, "reason": *reason, "replace": *replace})
		if err2 != nil {
			return err2
		}
		all = make([]api.Release, 1)
		res, err2 := c.CreateRelease(c.ctx, r.Id, &api.CreateReleaseParams{IdempotencyKey: key}, body)
		err = take(res, err2, &all[0])
	}
	if err != nil {
		return err
	}
	return c.print(all, func(w io.Writer) {
		fmt.Fprintln(w, "RELEASE\tPEOPLE\tLET IN\tSTATE\tSINCE\tBY\tREASON")
		for _, k := range all {
			in := "unknown"
			if k.LetIn != nil {
				in = strconv.Itoa(*k.LetIn)
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", k.Id, k.People, in, k.State, k.At.Format(time.RFC3339), k.By, k.Reason)
		}
	})
}
