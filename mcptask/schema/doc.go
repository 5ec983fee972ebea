// Package schema has Go types for the messages of MCP tasks, in both eras: 2025-11-25
// and 2026-07-28. A type keeps unknown members of a message when it reads it, and writes them
// back.
package schema
