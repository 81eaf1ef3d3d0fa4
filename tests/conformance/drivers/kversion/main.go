// Guesses the broker's version from its ApiVersions response, as kminion does, and prints the guess.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	guess, err := guess(ctx, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(guess)
}

func guess(ctx context.Context, bootstrap string) (string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return "", err
	}
	defer client.Close()
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "kversion", "1"
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return "", err
	}
	return kversion.FromApiVersionsResponse(response).VersionGuess(), nil
}
