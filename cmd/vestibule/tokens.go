package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

const tokensUsage = `usage: vestibule tokens list | create NAME [--role ROLE] [--expires DURATION] | revoke ID [flags]

  list          all tokens, without their values
  create NAME   make one; its value is shown this once
  revoke ID     refuse it from now on
`

// tokens manages the tokens of the API.
func tokens(args []string, stdout, stderr io.Writer) error {
	f, flags := flagSet("tokens", stderr), &clientFlags{}
	flags.add(f)
	role := f.String("role", "viewer", "viewer, operator, editor or admin")
	expires := f.Duration("expires", 0, "how long it is good for, 0 for ever")
	c, words, done, err := flags.open(f, args, tokensUsage, stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	verb := append(words, "")[0]
	if least := map[string]int{"list": 1, "create": 2, "revoke": 2}[verb]; least == 0 || len(words) != least || *expires < 0 {
		fmt.Fprint(stderr, tokensUsage)
		return node.ErrUsage
	}
	var list []api.Token
	switch verb {
	case "list":
		res, err := c.ListTokens(c.ctx)
		if err := take(res, err, &list); err != nil {
			return err
		}
	case "create":
		ask := map[string]string{"name": words[1], "role": *role}
		if *expires > 0 {
			ask["expires_on"] = time.Now().Add(*expires).UTC().Format(time.RFC3339)
		}
		data, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		var made api.Token
		res, err := c.CreateToken(c.ctx, data)
		if err := take(res, err, &made); err != nil {
			return err
		}
		return c.print(made, func(w io.Writer) { fmt.Fprintln(w, *made.Value) })
	default:
		gone := map[string]any{}
		res, err := c.DeleteToken(c.ctx, words[1])
		if err := take(res, err, &gone); err != nil {
			return err
		}
		return c.print(gone, func(w io.Writer) { fmt.Fprintf(w, "revoked %s\n", words[1]) })
	}
	return c.print(list, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tNAME\tROLE\tISSUED\tEXPIRES\tLAST USED")
		when := func(t *time.Time) string {
			if t == nil {
				return "-"
			}
			return t.Format(time.DateTime)
		}
		for _, t := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Id, t.Name, t.Role, when(&t.IssuedOn), when(t.ExpiresOn), when(t.LastUsedOn))
		}
	})
}
