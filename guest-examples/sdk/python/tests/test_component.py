"""What happens in a component, with a hostler of our own. Each test has its own Python: the SDK changes the standard library."""

import pathlib
import subprocess
import sys
import textwrap
import unittest

HERE = pathlib.Path(__file__).parent
BEGIN = """
import sys
sys.path[:0] = [{sdk!r}, {tests!r}]
import fake_host
fake_host.install("http", "publisher", "key_value", "store")
from hostler_handler import _start, _sockets
_sockets.is_build = False
from hostler_handler import _loop, _runtime, _handler
_loop.install()
import threading
threading.Thread.start = _start._no_thread
from hostler_handler import *

def run(function, body=b"null"):
    _handler._handlers[:] = [function]
    _runtime.MessageHandler.function = staticmethod(_handler.the_handler())
    return _runtime.MessageHandler().handle(fake_host.Message(body=body, headers=[]))

def fails(function, kind, words):
    try:
        outcome = run(function)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(outcome)
"""


def component(code):
    begin = BEGIN.format(sdk=str(HERE.parent), tests=str(HERE))
    done = subprocess.run([sys.executable, "-c", begin + textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Outcomes(unittest.TestCase):
    def test_outcomes_are_returns_and_exceptions(self):
        component("""
            def ack(body): pass
            def drop(body): raise Drop("why")
            def later(body): raise RetryAfter(1.5)
            def fault(body): raise KeyError("id")
            assert run(ack) == fake_host.Outcome_Ack()
            assert run(drop) == fake_host.Outcome_Drop("why")
            assert run(later) == fake_host.Outcome_NackRequeue(1500)
            fails(fault, KeyError, "id")
        """)

    def test_packages_find_a_home(self):
        component("""
            import os, pathlib
            os.environ.clear()
            def handle(body): assert pathlib.Path.home() == pathlib.Path("/")
            assert run(handle) == fake_host.Outcome_Ack()
        """)

    def test_a_drop_in_a_group_of_tasks_is_a_drop(self):
        component("""
            import asyncio
            async def inner(): raise Drop("why")
            async def outer(body):
                async with asyncio.TaskGroup() as group:
                    group.create_task(inner())
            if sys.version_info >= (3, 11):
                assert run(outer) == fake_host.Outcome_Drop("why")
        """)

    def test_effects_are_calls_of_the_host(self):
        component("""
            import os
            from dataclasses import dataclass
            @dataclass
            class Invoice: cents: int
            def act(body):
                assert os.environ["region"] == config.get("region") == "eu"
                key_value.set("k", "v", ttl=1)
                assert key_value.get("k") == b"v" and key_value.increment("n") == 1
                publish("invoices", Invoice(5), delay=2)
            run(act)
            outgoing = fake_host.Outgoing(b'{"cents":5}', [("content-type", "application/json")], 2000)
            assert fake_host.published == [("invoices", outgoing)], fake_host.published
            def secret(body): secrets.get("x")
            fails(secret, HostError, "this component has no [grant.secret]: write it into hostler.toml, and build again")
        """)


    def test_a_value_is_remembered_as_json(self):
        component("""
            from dataclasses import dataclass
            fake_host.install("journal")
            @dataclass
            class Account: id: str
            def act(body):
                assert recall("account") is None
                remember("account", Account("a-1"))
                assert recall("account") == {"id": "a-1"}
                remember("none", None)
            run(act)
            assert fake_host.journal == {"account": b'{"id":"a-1"}', "none": b"null"}, fake_host.journal
        """)


    def test_a_reply_is_bytes_or_text_or_json(self):
        component("""
            fake_host.install("reply")
            def total(body): reply({"total": 9.5})
            def text(body): reply("paid")
            def large(body): reply("x" * 70_000)
            assert run(total) == run(text) == fake_host.Outcome_Ack()
            assert fake_host.published == [b'{"total":9.5}', b"paid"]
            fails(large, HostError, "reply.set: the reply is too large")
        """)


    def test_a_held_message_comes_again(self):
        component("""
            fake_host.install("flow")
            def wait(body): raise hold(1.5)
            def long(body): raise hold(61)
            assert run(wait) == fake_host.Outcome_NackRequeue(1500)
            assert fake_host.published == [1500]
            fails(long, HostError, "flow.hold: it was held for too long")
        """)


class Tasks(unittest.TestCase):
    def test_tasks_run_to_their_end(self):
        component("""
            import asyncio
            done = []
            async def work(): await asyncio.sleep(0.01); done.append(1)
            async def floating(body): asyncio.create_task(work())
            def by_hand(body): asyncio.run(floating(body))
            def left_open(body): done.append(asyncio.new_event_loop().create_task(work()))
            for function in (floating, by_hand, left_open):
                done.clear()
                run(function)
                assert done.count(1) == 1, (function, done)
        """)

    def test_work_that_cannot_end_is_an_error_that_names_it(self):
        component("""
            import asyncio, threading
            async def forever(): await asyncio.get_running_loop().create_future()
            async def stuck(body): asyncio.create_task(forever())
            async def hour(): await asyncio.sleep(3600)
            async def long(body): asyncio.create_task(hour())
            async def bad(): raise ValueError("declined")
            async def failed(body): stuck.kept = asyncio.create_task(bad())
            def forgotten(body): hour()
            def thread(body): threading.Thread(target=print, name="mailer").start()
            fails(stuck, _loop.UnfinishedWork, "the task forever waits for something that never happens")
            fails(long, _loop.UnfinishedWork, "the task hour sleeps beyond the time of the attempt")
            fails(failed, ValueError, "declined")
            fails(forgotten, _loop.UnfinishedWork, "hour was called without `await`: nothing of it ran")
            fails(thread, RuntimeError, "cannot start mailer")
        """)


class Http(unittest.TestCase):
    def test_urllib_goes_over_the_grant(self):
        component("""
            import urllib.request
            def post(body):
                with urllib.request.urlopen("https://a.example/x?y=1", data=b"abc", timeout=3) as answer:
                    assert answer.read() == b'{"ok":true}'
            run(post)
            [request] = fake_host.requests
            assert (request.method, request.url, request.body, request.timeout_ms) == ("POST", "https://a.example/x?y=1", b"abc", 3000)
            assert "host" not in dict(request.headers) and "connection" not in dict(request.headers)
        """)

    def test_bodies_in_chunks_and_answers_without_a_body(self):
        component("""
            import http.client
            fake_host.answer = lambda request: fake_host.Response(200, [("content-length", b"7"), ("x-a", b"1")], b"")
            def call(body):
                connection = http.client.HTTPConnection("a.example", 81)
                connection.request("PUT", "/k", iter([b"ab", b"cd"]), encode_chunked=True, headers={"transfer-encoding": "chunked"})
                connection.getresponse().read()
                connection = http.client.HTTPConnection("a.example")
                connection.request("HEAD", "/k")
                answer = connection.getresponse()
                assert (answer.headers["content-length"], answer.headers["x-a"], answer.read()) == ("7", "1", b"")
            run(call)
            assert [(r.method, r.url, r.body) for r in fake_host.requests] == [
                ("PUT", "http://a.example:81/k", b"abcd"), ("HEAD", "http://a.example/k", None)]
        """)

    def test_errors_of_the_host_are_the_usual_ones(self):
        component("""
            import urllib.request
            def refuse(error):
                def answer(request): raise fake_host.Err(error)
                fake_host.answer = answer
            def call(body): urllib.request.urlopen("http://a.example/x?token=1")
            refuse(fake_host.Error_Denied("no rule"))
            fails(call, OSError, "hostler denied GET http://a.example/x: no rule")
            refuse(fake_host.Error_Timeout())
            fails(call, OSError, "GET http://a.example/x: no answer in time")
        """)

    def test_a_connection_by_asyncio_is_encrypted_by_hostler(self):
        component("""
            import asyncio, ssl
            async def call(body):
                reader, writer = await asyncio.open_connection("a.example", 443, ssl=ssl.create_default_context())
                writer.write(b"GET /x HTTP/1.1\\r\\nhost: a.example\\r\\n\\r\\n")
                assert (await reader.read()).endswith(b'{"ok":true}')
                writer.close()
            run(call)
            assert fake_host.requests[0].url == "https://a.example/x"
        """)

    def test_what_is_not_http_is_not_sent_by_http(self):
        component("""
            import socket
            listener = _sockets._real_socket()
            listener.bind(("127.0.0.1", 0)); listener.listen()
            def call(body):
                with socket.create_connection(listener.getsockname()) as plain:
                    plain.sendall(b"PING\\r\\n")
                    peer = _sockets._real_socket(fileno=listener._accept()[0])
                    assert peer.recv(10) == b"PING\\r\\n"
                    peer.sendall(b"+PONG\\r\\n")
                    assert plain.recv(10) == b"+PONG\\r\\n"
            run(call)
            assert fake_host.requests == []
        """)

    def test_there_are_no_sockets_while_a_component_is_built(self):
        component("""
            import socket
            _sockets.is_build = True
            def call(body): socket.create_connection(("a.example", 80))
            fails(call, OSError, "a component has no sockets while it is built")
        """)
