package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthPatience is how long health waits for an answer.
const healthPatience = 3 * time.Second

func newHealth(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "health URL",
		Short: "Ask a relay or a consumer whether it is ready",
		Long: `health gets URL, which is /readyz where it has no path, and fails unless the answer is
200. It is for health checks in images that have no other program.`,
		Example: `  cbcast health http://127.0.0.1:8420`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.health(c.Context(), args[0]) },
	}
}

func (a *app) health(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	if scheme, rest, ok := strings.Cut(url, "://"); !ok || rest == "" {
		return &exitError{exitUsage, fmt.Errorf("%q is no URL; want http://127.0.0.1:8420", url)}
	} else if !strings.Contains(rest, "/") {
		url = scheme + "://" + rest + "/readyz"
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status + " " + strings.TrimSpace(string(body)))
	}
	fmt.Fprintln(a.io.out, strings.TrimSpace(string(body)))
	return nil
}
