"""`socsched completion`: the script that lets a shell complete verbs, options and names."""

from __future__ import annotations

import click

from socsched.cli.options import Output, output_options

WHERE = {
    "bash": 'eval "$(socsched completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(socsched completion zsh)"  # in ~/.zshrc',
    "fish": "socsched completion fish | source  # in ~/.config/fish/config.fish",
}


@click.command("completion", short_help="Print the script that completes names in a shell.")
@click.argument("shell", type=click.Choice(list(WHERE)))
@output_options
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete verbs, options, platforms, pipelines, modes, stages and more.

    To install permanently: eval "$(socsched completion bash)" in ~/.bashrc, the same with zsh in ~/.zshrc, and in
    fish's config socsched completion fish | source.
    """
    from click.shell_completion import get_completion_class

    output: Output = ctx.obj
    found = get_completion_class(shell)
    assert found is not None
    script = found(ctx.find_root().command, {}, "socsched", "_SOCSCHED_COMPLETE").source()
    output.result({"shell": shell, "script": script, "install": WHERE[shell]}, lambda: click.echo(script))
