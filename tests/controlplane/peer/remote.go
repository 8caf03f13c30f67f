package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
)

// remote asks a scripted cloud elsewhere for each answer, so that two controllers can be played the same.
type remote struct {
	cloud
	url string
}

// answer is what the scripted cloud says to one call.
type answer struct {
	Outcome string                `json:"outcome"` // ok, error, retry, elsewhere
	Message string                `json:"message"`
	Seconds float64               `json:"seconds"` // for retry
	Exists  bool                  `json:"exists"`
	Status  v1.LoadBalancerStatus `json:"status"`
}

func newRemote(url string) *remote {
	c := &remote{url: url}
	c.cloud = cloud{name: "parity", balancer: c}
	return c
}

func (c *remote) call(ctx context.Context, verb string, s *v1.Service, nodes []*v1.Node) (*answer, error) {
	body, err := json.Marshal(map[string]any{"verb": verb, "service": s, "nodes": nodes})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/call", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the scripted cloud answered %s", response.Status)
	}
	var said answer
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
		return nil, err
	}
	switch said.Outcome {
	case "error":
		return nil, errors.New(said.Message)
	case "retry":
		return nil, api.NewRetryError(said.Message, time.Duration(said.Seconds*float64(time.Second)))
	case "elsewhere":
		return nil, cloudprovider.ImplementedElsewhere
	}
	return &said, nil
}

func (c *remote) GetLoadBalancer(ctx context.Context, _ string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	said, err := c.call(ctx, "get", s, nil)
	if err != nil {
		return nil, false, err
	}
	return &said.Status, said.Exists, nil
}

func (c *remote) GetLoadBalancerName(_ context.Context, _ string, s *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(s)
}

func (c *remote) EnsureLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	said, err := c.call(ctx, "ensure", s, nodes)
	if err != nil {
		return nil, err
	}
	return &said.Status, nil
}

func (c *remote) UpdateLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) error {
	_, err := c.call(ctx, "update", s, nodes)
	return err
}

func (c *remote) EnsureLoadBalancerDeleted(ctx context.Context, _ string, s *v1.Service) error {
	_, err := c.call(ctx, "delete", s, nil)
	return err
}
