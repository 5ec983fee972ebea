package gosdktask

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/thoughtgate/thoughtgate-go/task"
)

type lines struct{}

func (l *lines) opened(mcp.Request, task.Task) {}
