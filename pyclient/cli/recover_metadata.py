"""`pyclient recover-metadata`: truncate a damaged metadata log before the damage, and keep the removed bytes."""

from __future__ import annotations

import click


@click.command("recover-metadata")
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False))
def recover_metadata(data_dir: str) -> None:
    """Truncate a damaged metadata log, so that the broker of DATA_DIR starts again.

    For a broker that refuses to start because its metadata log is damaged, if there is no undamaged copy. Changes of
    topics, options and users from the damage on are undone; their bytes are kept in files ending in .cut-at-BYTE. The
    next start keeps the logs of topics that are unknown then: their directories get names ending in -stray.
    """
    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.controller.metadata_log import MetadataReplay
    from pyclient.broker_embedded.controller.metadata_recovery import METADATA_DIRECTORY, truncate_metadata_log
    from pyclient.broker_embedded.log.filesystem import RealFileSystem

    image, fs = MetadataImage(), RealFileSystem()
    replay = MetadataReplay(image)
    replay.snapshot(fs, f"{data_dir}/{METADATA_DIRECTORY}")
    truncation = truncate_metadata_log(fs, data_dir, replay.take_batch, replay.from_offset)
    if truncation is None:
        click.echo("the metadata log is not damaged; nothing was changed")
        return
    click.echo(
        f"{truncation.damage.path} ends at byte {truncation.damage.position} now; "
        f"{truncation.removed_bytes} bytes were cut off, kept in:"
    )
    for path in truncation.kept:
        click.echo(f"  {path}")
    click.echo(f"{len(image.topics)} topics are left: {', '.join(sorted(image.topics)) or 'none'}")
