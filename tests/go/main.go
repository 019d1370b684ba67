// Activities in Go, as any worker of Temporal's has them: nothing in here knows of everturn.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
)

type Book struct {
	Title string `json:"title"`
	Pages int    `json:"pages"`
}

var name = os.Args[3]

// Render renders page after page, and goes on where a worker before it stopped.
func Render(ctx context.Context, book Book) (map[string]any, error) {
	page := 0
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &page)
	}
	for ; page < book.Pages; page++ {
		fmt.Printf("%s renders page %d\n", name, page)
		activity.RecordHeartbeat(ctx, page)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return map[string]any{"title": book.Title, "pages": page, "by": name, "key": activity.GetInfo(ctx).ActivityID}, nil
}

func Add(_ context.Context, a, b float64) (float64, error) { return a + b, nil }

func Refund(_ context.Context, order string) (string, error) {
	return "", temporal.NewApplicationError("There is no order "+order+".", "NoSuchOrder")
}

// Flaky needs three tries.
func Flaky(ctx context.Context) (string, error) {
	if tries := activity.GetInfo(ctx).Attempt; tries < 3 {
		return "", fmt.Errorf("not at try %d", tries)
	}
	return "took 3 tries", nil
}

func main() {
	c, err := client.Dial(client.Options{HostPort: os.Args[1]})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	w := worker.New(c, os.Args[2], worker.Options{})
	w.RegisterActivityWithOptions(Render, activity.RegisterOptions{Name: "render"})
	w.RegisterActivityWithOptions(Add, activity.RegisterOptions{Name: "add"})
	w.RegisterActivityWithOptions(Refund, activity.RegisterOptions{Name: "refund"})
	w.RegisterActivityWithOptions(Flaky, activity.RegisterOptions{Name: "flaky"})
	if err := w.Start(); err != nil {
		panic(err)
	}
	fmt.Printf("%s is ready\n", name)
	select {}
}
