// This file takes the place of net/http/roundtrip.go when a handler is built (go build -overlay), as
// net/http has one of its own for browsers. Every http.Transport then sends its requests through hostler,
// which allows what [[grant.http]] names.

//go:build !js

package http

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
	_ "unsafe" // for go:linkname
)

// Package hostler has it.
//
//go:linkname hostlerFetch hostler.fetch
func hostlerFetch(method, url string, headers [][2]string, body []byte, timeout time.Duration) (int, [][2]string, []byte, error)

// Libraries link to it: see go.dev/issue/67401.
//
//go:linkname badRoundTrip net/http.(*Transport).RoundTrip
func badRoundTrip(*Transport, *Request) (*Response, error)

// The host sets these itself, from the URL and the body.
var hostlerSets = []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// RoundTrip implements the [RoundTripper] interface. It sends the request and waits for the whole response.
func (t *Transport) RoundTrip(req *Request) (*Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if req.URL == nil || req.URL.Host == "" {
		return nil, errors.New("http: no Host in request URL")
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	var timeout time.Duration
	if deadline, ok := req.Context().Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	header := req.Header.Clone()
	for _, name := range hostlerSets {
		header.Del(name)
	}
	var headers [][2]string
	for name, values := range header {
		for _, value := range values {
			headers = append(headers, [2]string{strings.ToLower(name), value})
		}
	}
	target := *req.URL
	target.User, target.Fragment, target.RawFragment = nil, "", ""
	if req.Host != "" {
		target.Host = req.Host
	}
	if !hostlerSame(target.Host, req.URL) {
		return nil, errors.New("http: the header host must be that of the URL, on hostler")
	}
	method := req.Method
	if method == "" {
		method = "GET"
	}
	status, answered, content, err := hostlerFetch(method, target.String(), headers, body, timeout)
	if err != nil {
		return nil, err
	}
	response := &Response{
		Status:        strconv.Itoa(status) + " " + StatusText(status),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(Header, len(answered)),
		Body:          NoBody,
		ContentLength: int64(len(content)),
		Request:       req,
	}
	for _, header := range answered {
		response.Header.Add(header[0], header[1])
	}
	if len(content) > 0 {
		response.Body = io.NopCloser(bytes.NewReader(content))
	}
	return response, nil
}

// Whether a host is that of the URL: with the port of its scheme or without.
func hostlerSame(host string, to *url.URL) bool {
	port := map[string]string{"http": ":80", "https": ":443"}[to.Scheme]
	plain := func(host string) string { return strings.TrimSuffix(strings.ToLower(host), port) }
	return plain(host) == plain(to.Host)
}
