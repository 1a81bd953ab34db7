"""Web API: files.*"""

from tests.slack_emulator.calls import Call, Methods
from tests.slack_emulator.messages import Message, file_json
from tests.slack_emulator.wire import Json, SlackError, records, text


def _upload_url(call: Call) -> Json:
    upload = call.context.uploads.announce(call.word("filename"), call.number("length"))
    return {
        "upload_url": f"{call.context.url()}/upload/{upload.key}",
        "file_id": upload.file.file_id,
    }


def _complete(call: Call) -> Json:
    """Share the uploaded files as one message, if a channel is named."""
    given = records(call.args.get("files"))
    if not given:
        raise SlackError("invalid_arguments", ["[ERROR] missing required field: files"])
    named = call.word("channel_id")
    channel = call.writable("channel_id") if named else None
    files = tuple(
        call.context.uploads.share(text(file.get("id")), text(file.get("title"))) for file in given
    )
    if channel is not None:
        call.workspace.post(
            Message(
                channel.id,
                "",
                call.workspace.app.bot_user_id,
                call.word("initial_comment"),
                thread_ts=call.word("thread_ts"),
                files=files,
            )
        )
    return {"files": [file_json(file) for file in files]}


METHODS: Methods = {
    "files.getUploadURLExternal": _upload_url,
    "files.completeUploadExternal": _complete,
}
