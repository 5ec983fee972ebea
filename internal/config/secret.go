package config

import (
	"fmt"
	"io"
)

const hidden = "[secret]"

// A Secret is a text that does not print: fmt, JSON, YAML and logs show "[secret]". The
// zero Secret is the empty text.
type Secret struct {
	// A closure, because printing by reflection follows strings and pointers and ignores
	// methods.
	reveal func() string
}

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret {
	return Secret{func() string { return text }}
}

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// Format implements [fmt.Formatter] for every verb.
func (Secret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, hidden)
}

// MarshalText implements [encoding.TextMarshaler] for JSON, YAML and slog.
func (Secret) MarshalText() ([]byte, error) {
	return []byte(hidden), nil
}
