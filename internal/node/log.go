package node

import (
	"fmt"
	"io"
	"log/slog"
)

// LogConfig is the configuration of the log.
type LogConfig struct {
	Level  string `mapstructure:"level" doc:"debug, info, warn or error"`
	Format string `mapstructure:"format" doc:"text or json"`
}

// NewLogger returns a logger that writes to w. The configuration must be valid.
func NewLogger(w io.Writer, c LogConfig) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// Validate returns all faults.
func (c LogConfig) Validate() []error {
	var errs []error
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		errs = append(errs, fmt.Errorf("log.level: must be debug, info, warn or error, got %q", c.Level))
	}
	if c.Format != "text" && c.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format: must be text or json, got %q", c.Format))
	}
	return errs
}
