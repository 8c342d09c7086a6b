/* Colour conversion, resizing, normalisation, layout and data type of a camera frame in one pass.

   Arithmetic is that of models/camera.py: rows and columns of taps with weights, top before bottom. */

FUNCTION float channel_at(const GLOBAL u8 *image, int channel, int y, int x)
{
#if FORMAT == 0 /* RGB planes */
    return image[(channel * HEIGHT + y) * WIDTH + x];
#elif FORMAT == 1 /* RGB pixels */
    return image[(y * WIDTH + x) * 3 + channel];
#elif FORMAT == 2 /* BGR pixels */
    return image[(y * WIDTH + x) * 3 + 2 - channel];
#else /* NV12: luma, then interleaved chroma at half the resolution; BT.601 limited range in 16ths of 1/65536 */
    const GLOBAL u8 *chroma = image + HEIGHT * WIDTH + y / 2 * WIDTH + x / 2 * 2;
    int luma = 76309 * (image[y * WIDTH + x] - 16), u = chroma[0] - 128, v = chroma[1] - 128;
    int value = channel == 0 ? luma + 104597 * v : channel == 1 ? luma - 25675 * u - 53279 * v : luma + 132201 * u;
    value = (value + 32768) >> 16;
    return value < 0 ? 0 : value > 255 ? 255 : value;
#endif
}

KERNEL camera_input(const GLOBAL u8 *image, const GLOBAL int *taps, const GLOBAL float *weights, GLOBAL MAP *input)
{
    int pixel = GROUP * ITEMS + ITEM;
    if (pixel >= INPUT_HEIGHT * INPUT_WIDTH)
        return;
    int row = pixel / INPUT_WIDTH, column = pixel % INPUT_WIDTH;
    int top = taps[2 * row], bottom = taps[2 * row + 1];
    int left = taps[2 * (INPUT_HEIGHT + column)], right = taps[2 * (INPUT_HEIGHT + column) + 1];
    float down = weights[row], across = weights[INPUT_HEIGHT + column];
    const float scale[3] = {SCALE}, offset[3] = {OFFSET};
    for (int c = 0; c < 3; c++) {
        float value = PADDING;
        if (top >= 0 && left >= 0) {
            float above = channel_at(image, c, top, left), below = channel_at(image, c, bottom, left);
            above += (channel_at(image, c, top, right) - above) * across;
            below += (channel_at(image, c, bottom, right) - below) * across;
            value = above + (below - above) * down;
        }
        value = value * scale[c] - offset[c];
        STORE_MAP(input, NHWC ? pixel * CHANNELS + c : c * INPUT_HEIGHT * INPUT_WIDTH + pixel, value);
    }
    for (int c = 3; NHWC && c < CHANNELS; c++)
        STORE_MAP(input, pixel * CHANNELS + c, 0);
}
