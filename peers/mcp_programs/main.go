// A server with the Go SDK (`peer stdio`, `peer PORT`), and a client of `everturn mcp` (`peer client ADDRESS`, or a command).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type payment struct {
	Cents int `json:"cents"`
}

func pay(_ context.Context, _ *mcp.CallToolRequest, given payment) (*mcp.CallToolResult, any, error) {
	text := &mcp.TextContent{Text: fmt.Sprintf("paid %d", given.Cents)}
	return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func client(place []string) {
	ctx := context.Background()
	var transport mcp.Transport = &mcp.CommandTransport{Command: exec.Command(place[0], place[1:]...)}
	if strings.HasPrefix(place[0], "http") {
		transport = &mcp.StreamableClientTransport{Endpoint: place[0]}
	}
	session := must(mcp.NewClient(&mcp.Implementation{Name: "peer", Version: "1"}, nil).Connect(ctx, transport, nil))
	defer session.Close()
	names := []string{}
	for _, tool := range must(session.ListTools(ctx, nil)).Tools {
		names = append(names, tool.Name)
	}
	asked := &mcp.CallToolParams{Name: "clerk", Arguments: map[string]any{"message": "Hi"}}
	start := map[string]any{"agent": "clerk", "message": "Hi", "conversation_id": "a"}
	fmt.Println(string(must(json.Marshal(map[string]any{
		"version": session.InitializeResult().ServerInfo.Version,
		"tools":   names,
		"result":  must(session.CallTool(ctx, asked)).StructuredContent,
		"begun":   must(session.CallTool(ctx, &mcp.CallToolParams{Name: "start", Arguments: start})).StructuredContent,
	}))))
}

func main() {
	if os.Args[1] == "client" {
		client(os.Args[2:])
		return
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "pay", Description: "Pays."}, pay)
	if os.Args[1] == "stdio" {
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], handler))
}
