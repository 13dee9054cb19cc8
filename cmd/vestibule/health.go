package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthLimit bounds the reasons that a node gives.
const healthLimit = 4096

func newHealthCmd() *cobra.Command {
	return &cobra.Command{
		Use: "health URL", Short: "Ask a node whether it is ready",
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, args[0], nil)
			if err != nil || req.URL.Host == "" || !strings.HasPrefix(req.URL.Scheme, "http") {
				return misuse(cmd, "URL: must be an address such as http://127.0.0.1:9100/readyz, got %q", args[0])
			}
			client := http.Client{Timeout: 5 * time.Second}
			res, err := client.Do(req)
			if err != nil {
				return fmt.Errorf("the node does not answer: %w", err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(io.LimitReader(res.Body, healthLimit))
			if err != nil {
				return fmt.Errorf("the node does not answer: %w", err)
			}
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s: %s", args[0], res.Status, strings.TrimSpace(string(body)))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	}
}
